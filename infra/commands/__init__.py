"""The commands of `gpufleet`, one module per group; `infra.cli` puts them together."""
