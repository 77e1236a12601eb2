# Three images of one program: `service` answers HTTP and has no compiler, `worker` runs jobs on the
# processor, `worker-gpu` on a GPU. docker-compose.yml builds them:  docker compose build
#
# What a step does stands in docker/*.sh; tests/test_packaging.py runs install.sh outside of Docker.
# Base images are pinned by version. For a build that can be repeated to the byte, name them with a
# digest:  docker build --build-arg PYTHON_IMAGE=python:3.11.14-slim-bookworm@sha256:... .

ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
ARG CUDA_IMAGE=nvidia/cuda:13.0.1-devel-ubuntu24.04

FROM ${PYTHON_IMAGE} AS install
WORKDIR /src
COPY . .
RUN docker/install.sh /opt/cudaops models,otel

# The API: no compiler; it runs nothing that anybody sends.
FROM ${PYTHON_IMAGE} AS service
COPY docker/system.sh docker/healthy.py /usr/local/lib/cudaops/
RUN /usr/local/lib/cudaops/system.sh
COPY --from=install /opt/cudaops /opt/cudaops
ENV PATH=/opt/cudaops/bin:$PATH HOME=/var/lib/cudaops CUDAOPS_CACHE=/var/lib/cudaops/cache \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 CUDAOPS_LOG=json
WORKDIR /var/lib/cudaops
USER 10001:10001
CMD ["cudaops", "serve", "--host", "0.0.0.0", "--port", "8080", "--workers", "0"]

# A worker on the processor: g++ compiles kernels; bubblewrap serves where namespaces are allowed.
FROM service AS worker
USER root
RUN /usr/local/lib/cudaops/system.sh g++ bubblewrap
USER 10001:10001
CMD ["cudaops", "worker", "--executor", "cpu"]

# A worker on a GPU: nvcc, ncu and compute-sanitizer come with the base image, Python 3.12 with Ubuntu.
FROM ${CUDA_IMAGE} AS cuda
COPY docker/system.sh docker/healthy.py /usr/local/lib/cudaops/
RUN /usr/local/lib/cudaops/system.sh python3 python3-venv g++ bubblewrap

FROM cuda AS install-gpu
WORKDIR /src
COPY . .
RUN docker/install.sh /opt/cudaops cuda,models,otel

FROM cuda AS worker-gpu
COPY --from=install-gpu /opt/cudaops /opt/cudaops
ENV PATH=/opt/cudaops/bin:$PATH HOME=/var/lib/cudaops CUDAOPS_CACHE=/var/lib/cudaops/cache \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 CUDAOPS_LOG=json
WORKDIR /var/lib/cudaops
USER 10001:10001
CMD ["cudaops", "worker", "--executor", "cuda"]
