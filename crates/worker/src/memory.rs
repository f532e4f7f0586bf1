//! How the C library treats memory that a rank frees.

/// Free memory at the end of the heap that stays with the process, bytes.
const TRIM_THRESHOLD: i32 = 512 << 20;
/// Blocks of at least this size are mapped and unmapped one by one, bytes; glibc accepts no larger figure.
const MMAP_THRESHOLD: i32 = 32 << 20;

/// Have the C library keep freed memory. A step frees gradients and activations, and the next one needs as much again: memory that went
/// back to the kernel comes back as pages that it fills with zeros first, a tenth of a step of 21 million parameters. The user's own
/// variables for the C library take precedence.
pub fn keep_freed_memory() {
    if ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    // SAFETY: sets options of the allocator; no other thread runs yet. A figure that is refused changes nothing.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD);
    }
}
