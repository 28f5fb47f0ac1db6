# The agent's image: the agent, the contract it reads, and nothing that deploys.
#
#   docker build -t ghcr.io/gpufleet/agent:0.1.0 .
#
# Two stages, so that neither uv nor a compiler is in what runs.

FROM ghcr.io/astral-sh/uv:0.13.9 AS uv

FROM python:3.11.14-slim-trixie AS build
COPY --from=uv /uv /bin/uv
WORKDIR /app
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
COPY pyproject.toml uv.lock README.md LICENSE ./
# pydantic and PyYAML are the project's own dependencies; the rest of the agent's, and of the reader of GPUs on nodes, are
# groups. The project itself is not installed: its two packages are copied below, and run from /app.
RUN uv sync --locked --no-default-groups --group agent --group node --no-install-project --no-editable
# What is inside, for scanners: the same packages, in the form of CycloneDX.
RUN uv export --locked --no-default-groups --group agent --group node --no-emit-project --format cyclonedx1.5 -o sbom.cdx.json

FROM python:3.11.14-slim-trixie
WORKDIR /app
COPY --from=build /app/.venv /app/.venv
COPY --from=build /app/sbom.cdx.json /app/sbom.cdx.json
COPY stacks/ /app/stacks/
COPY runtime/ /app/runtime/
# The filesystem is read-only where it runs, so byte code is made here.
RUN /app/.venv/bin/python -m compileall -q /app/stacks /app/runtime
ENV PATH=/app/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# No user of the base image; the number is the one that the Deployment asks for.
USER 65532:65532
EXPOSE 8080
ENTRYPOINT []
CMD ["python", "-m", "runtime"]
