//! Configs: the TOML language, validated with spans.
