//! Five seconds of damage for every reader.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

/// What `make check` leaves out.
mod slow {
    use std::process::Command;

    /// Seconds of each reader.
    const SECONDS: &str = "5";

    fn search(reader: &str) {
        let findings = tempfile::tempdir().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_fuzz"))
            .args([reader, SECONDS, "--findings"])
            .arg(findings.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            // The findings go with the failure.
            panic!("{said}{}", findings.keep().display());
        }
        // A search that read nothing would be fine, too.
        let cases = said.split_once(" seeds, ").and_then(|(_, rest)| rest.split_once(" cases")).unwrap().0;
        assert!(cases.parse::<u64>().unwrap() > 20, "{said}");
    }

    macro_rules! readers {
        ($($reader:ident)*) => { $(#[test] fn $reader() { search(stringify!($reader)); })* };
    }

    readers!(h5ad zarr parquet mds graph ledger timings config log slurm);
}
