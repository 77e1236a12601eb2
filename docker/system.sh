#!/bin/sh
# What an image needs beside Python's packages: docker/system.sh [PACKAGE...]
#
# Debian packages, and the account that everything runs under: no password, no shell, and a home
# folder that is the one place it may write to (a volume). May be run again with further packages.
set -eu

if [ "$#" -gt 0 ]; then
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"
    rm -rf /var/lib/apt/lists/*
fi
getent group cudaops >/dev/null || groupadd --gid 10001 cudaops
getent passwd cudaops >/dev/null || useradd --uid 10001 --gid 10001 --no-create-home \
    --home-dir /var/lib/cudaops --shell /usr/sbin/nologin cudaops
install --directory --owner 10001 --group 10001 --mode 0750 /var/lib/cudaops
