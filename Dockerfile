# An image with the `albert-tf` commands, for CPUs, with the versions that CI tests:
#   docker build -t albert_tf .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/work" albert_tf --help
FROM python:3.12-slim

WORKDIR /src
# The requirements are installed before the code is copied. So after a change of the code,
# they are not downloaded again.
COPY constraints.txt requirements.lock requirements.txt ./
# The constraints also hold for the packages that build albert_tf.
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_NO_CACHE_DIR=1
RUN pip install --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY albert_tf albert_tf
RUN pip install --no-deps . && useradd --create-home albert

USER albert
# The user of `docker run --user` may have no home folder. In /tmp, every user can write
# downloaded weights and the caches of libraries.
ENV HOME=/tmp
WORKDIR /work
ENTRYPOINT ["albert-tf"]
