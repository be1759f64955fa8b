"""Part of the control plane."""
