//! What happens when the loader has put the library into a process, before its `main`.

use cuvisor_policy::file::policy::Mode;

use crate::apply;
use crate::environ;
use crate::state;
use crate::sys;

ctor::declarative::ctor! {
    /// Fixes `CUDA_VISIBLE_DEVICES` before any code of the program reads it. It loads nothing, prints
    /// nothing, waits for nothing and cannot fail. It has no priority among constructors and needs none:
    /// where another one calls the driver before it, the hooks decide the same for themselves (B26).
    #[ctor(unsafe)]
    fn construct() {
        sys::keep_errno(|| {
            environ::before_main(|| {
                let state = state::get();
                if state.active && state.mode == Mode::Enforce {
                    apply::at_start(state);
                }
            });
        });
    }
}
