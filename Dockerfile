# The commands on CPUs, with the versions that CI tests:
#   docker build -t albert_tf .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" albert_tf --help
FROM python:3.12-slim

WORKDIR /src
# Before the code, whose changes need no new download.
COPY constraints.txt requirements.lock requirements.txt ./
# Also for what builds the package.
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_NO_CACHE_DIR=1
RUN pip install --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY albert_tf albert_tf
RUN pip install --no-deps . && useradd --create-home albert

USER albert
# Of any user that is given: downloaded weights and the caches of libraries.
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["albert-tf"]
