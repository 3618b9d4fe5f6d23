//! The cudarc crate as a client: a driver API binding that nobody here wrote.
use cudarc::driver::CudaContext;

fn main() {
    println!("count {:?}", CudaContext::device_count().map_err(|e| e.0 as i32));
    match CudaContext::new(0) {
        Ok(context) => println!(
            "uuid {}",
            context.uuid().map_or("?".into(), |u| u.bytes.iter().take(4).map(|b| format!("{:02x}", *b as u8)).collect::<String>())
        ),
        Err(error) => println!("error {}", error.0 as i32),
    }
}
