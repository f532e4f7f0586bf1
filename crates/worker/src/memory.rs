/// Memory that a rank may keep for itself at the end of its heap, bytes.
const KEPT: i32 = 512 << 20;
/// Blocks from this size on are of the kernel each time; glibc takes no larger figure.
const LARGE: i32 = 32 << 20;

/// Have the C library keep freed memory. A step frees gradients and activations and needs as much again in the next one: what went
/// back to the kernel meanwhile comes as pages that it fills with zeros first, a tenth of a step of 21 million parameters. The
/// variables with which a user tells the C library otherwise are heeded.
pub fn keep_freed_memory() {
    if ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    // SAFETY: sets numbers of the allocator; no other thread runs yet. A figure that is refused changes nothing.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
    }
}
