//! Reads CUDA_VISIBLE_DEVICES as the driver does.

/// The GPUs that a value makes visible, or cuInit's error.
pub fn visible(value: Option<&[u8]>, uuids: &[String]) -> Result<Vec<usize>, i32> {
    let Some(value) = value else {
        return if uuids.is_empty() { Err(100) } else { Ok((0..uuids.len()).collect()) };
    };
    let by_uuid = value.starts_with(b"GPU-") || value.starts_with(b"MIG-");
    let mut list: Vec<usize> = Vec::new();
    let mut repeated = false;
    let mut rest = value;
    loop {
        let comma = rest.iter().position(|c| *c == b',');
        let word = &rest[..comma.unwrap_or(rest.len())];
        let found = if by_uuid { find_uuid(word, uuids) } else { find_number(word, uuids.len()) };
        let Some(k) = found else { break };
        if list.contains(&k) {
            repeated = true;
        }
        list.push(k);
        match comma {
            Some(at) => rest = &rest[at + 1..],
            None => break,
        }
    }
    if repeated {
        return Err(101);
    }
    if list.is_empty() { Err(100) } else { Ok(list) }
}

/// Hexadecimal digits are compared as far as they go, 32 at most; dashes are skipped wherever they stand.
fn find_uuid(word: &[u8], uuids: &[String]) -> Option<usize> {
    let rest = word.strip_prefix(b"GPU-").or(word.strip_prefix(b"MIG-"))?;
    if rest.is_empty() {
        return None;
    }
    let mut digits = String::new();
    for c in rest {
        if digits.len() == 32 {
            break;
        }
        if *c == b'-' {
            continue;
        }
        if !c.is_ascii_hexdigit() {
            return None;
        }
        digits.push(c.to_ascii_lowercase() as char);
    }
    let mut hit = None;
    for (k, uuid) in uuids.iter().enumerate() {
        let own = uuid[4..].replace('-', "").to_lowercase();
        if own.starts_with(&digits) {
            if hit.is_some() {
                return None;
            }
            hit = Some(k);
        }
    }
    hit
}

/// strtoul, then a cast to int.
fn find_number(word: &[u8], count: usize) -> Option<usize> {
    let mut at = 0;
    while at < word.len() && matches!(word[at], b' ' | b'\t'..=b'\r') {
        at += 1;
    }
    let mut negative = false;
    if at < word.len() && (word[at] == b'-' || word[at] == b'+') {
        negative = word[at] == b'-';
        at += 1;
    }
    if at == word.len() || !word[at].is_ascii_digit() {
        return None;
    }
    let mut wide: u128 = 0;
    while at < word.len() && word[at].is_ascii_digit() {
        wide = (wide * 10 + u128::from(word[at] - b'0')).min(1 << 70);
        at += 1;
    }
    let long = match u64::try_from(wide) {
        Err(_) => u64::MAX,
        Ok(long) if negative => 0u64.wrapping_sub(long),
        Ok(long) => long,
    };
    let int = long as i32;
    usize::try_from(int).ok().filter(|k| *k < count)
}
