use std::collections::BTreeMap;

use sha1::{Digest, Sha1};
use sha2::{Sha224, Sha256, Sha384, Sha512};
use twox_hash::{XxHash3_64, XxHash3_128, XxHash32, XxHash64};

/// Compare `data` with the hashes that are given for it, by the names that the package has for them: SHA-1, SHA-2 and the
/// xxHashes. The others of Python's hashlib are not looked at.
pub(super) fn check(data: &[u8], hashes: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, expected) in hashes {
        if let Some(found) = hash(name, data).filter(|found| !found.eq_ignore_ascii_case(expected)) {
            return Err(format!("its {name} is {found}, the index says {expected}"));
        }
    }
    Ok(())
}

/// Whether none of these can be compared.
pub(super) fn are_unknown(hashes: &BTreeMap<String, String>) -> bool {
    !hashes.is_empty() && hashes.keys().all(|name| hash(name, &[]).is_none())
}

/// The hash that is written for shards.
pub(super) const WRITTEN: &str = "xxh64";

/// As hexadecimal digits; `None` of an unknown name.
pub(super) fn hash(name: &str, data: &[u8]) -> Option<String> {
    Some(match name {
        "sha1" => hex(&Sha1::digest(data)),
        "sha224" => hex(&Sha224::digest(data)),
        "sha256" => hex(&Sha256::digest(data)),
        "sha384" => hex(&Sha384::digest(data)),
        "sha512" => hex(&Sha512::digest(data)),
        "xxh32" => format!("{:08x}", XxHash32::oneshot(0, data)),
        "xxh64" => format!("{:016x}", XxHash64::oneshot(0, data)),
        "xxh3_64" => format!("{:016x}", XxHash3_64::oneshot(data)),
        "xxh3_128" | "xxh128" => format!("{:032x}", XxHash3_128::oneshot(data)),
        _ => return None,
    })
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_python() {
        // hashlib.NAME(b"abc").hexdigest(), xxhash.NAME(b"abc").hexdigest()
        for (name, expected) in [
            ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("xxh32", "32d153ff"),
            ("xxh64", "44bc2cf5ad770999"),
            ("xxh3_64", "78af5f94892f3950"),
            ("xxh128", "06b05ab6733a618578af5f94892f3950"),
        ] {
            assert_eq!(hash(name, b"abc").as_deref(), Some(expected), "{name}");
            let hashes = BTreeMap::from([(name.to_owned(), expected.to_uppercase())]);
            assert_eq!(check(b"abc", &hashes), Ok(()));
            assert!(check(b"abd", &hashes).unwrap_err().contains(name));
        }
        let unknown = BTreeMap::from([("blake2b".to_owned(), String::new())]);
        assert!(are_unknown(&unknown) && check(b"abc", &unknown).is_ok());
    }
}
