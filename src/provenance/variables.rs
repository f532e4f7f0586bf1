use std::collections::BTreeMap;

use expctl_record::looks_secret;

use super::secrets::Secrets;

/// Variables that change what a job does, by the beginning of their names. Others are nobody's business.
const TOLD: [&str; 16] = [
    "EXPCTL_",
    "SLURM_CONF",
    "LIBTORCH",
    "LD_LIBRARY_PATH",
    "LOADEDMODULES",
    "XDG_CONFIG_HOME",
    "CONDA_DEFAULT_ENV",
    "VIRTUAL_ENV",
    "OMP_",
    "MKL_",
    "KMP_",
    "GLOO_",
    "NCCL_",
    "CUDA_VISIBLE_DEVICES",
    "PYTORCH_",
    "SLURM_CLUSTERS",
];

/// The variables of this process that are told, and the names of those that would be, were they not secret.
pub(super) fn variables(secrets: &Secrets) -> (BTreeMap<String, String>, Vec<String>) {
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let (mut told, mut left_out) = (BTreeMap::new(), Vec::new());
    for (name, value) in all.filter(|(name, _)| TOLD.iter().any(|prefix| name.starts_with(prefix))) {
        if looks_secret(&name) {
            left_out.push(name);
        } else {
            told.insert(name, secrets.cleaned(&value));
        }
    }
    left_out.sort();
    (told, left_out)
}
