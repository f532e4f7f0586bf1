//! What a perturbation removes from the graph.
