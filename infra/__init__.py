"""The roof: the Pulumi program, the command line, and the embedded control plane."""
