# Two stages: the first installs into /opt/venv, the second has that and the models, and no build tools.
# A private package index is passed with --build-arg PIP_INDEX_URL=... (or PIP_EXTRA_INDEX_URL); it leaves no trace in the image.
FROM python:3.11-slim-bookworm AS build

ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

WORKDIR /src
RUN python -m venv --without-pip /opt/venv

# Dependencies first: this layer is built again only when pyproject.toml changes. Wheels only, so that no compiler is needed.
COPY pyproject.toml ./
# Extras to install: --build-arg EXTRAS=grpc
ARG EXTRAS
RUN python -c 'import os, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*p["dependencies"], *(r for e in os.environ.get("EXTRAS", "").split() for r in p["optional-dependencies"][e]), sep="\n")' >requirements.txt \
 && python -m pip --python /opt/venv/bin/python install --only-binary :all: --requirement requirements.txt

COPY README.md LICENSE pnnx_serve.py ./
COPY engine ./engine
COPY app ./app
RUN python -m pip --python /opt/venv/bin/python install --no-deps .

# Removes what only developers need, and compiles the bytecode, which a read-only container could not do at start.
RUN cd /opt/venv/lib/python3.*/site-packages \
 && find . -type d \( -name tests -o -name include \) -prune -exec rm -rf {} + \
 && find . -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' -o -name '*.a' \) -delete \
 && rm -rf numpy/f2py \
 && python -m compileall -q --invalidation-mode unchecked-hash .


FROM python:3.11-slim-bookworm

LABEL org.opencontainers.image.title="pnnx-serve" org.opencontainers.image.licenses="MIT"

# Removes the base image's installer, which a running container does not need.
RUN rm -rf /usr/local/lib/python3.*/site-packages/* /usr/local/lib/python3.*/ensurepip /usr/local/bin/pip* \
 && useradd --uid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin pnnx

COPY --from=build /opt/venv /opt/venv
COPY model_store /models
# The compile cache. Without a volume it lasts as long as the container; if it is read-only, every start compiles.
RUN install --directory --owner=10001 --group=10001 /var/cache/pnnx-serve
VOLUME /var/cache/pnnx-serve
# Also under this name, so that the curl line at start-up names a file of the folder that the image was built from.
RUN ln -s /models /srv/model_store

# /tmp must be writable, and the cache should be. MALLOC_TOP_PAD_ keeps freed request bodies in the heap: without it every
# large tensor is mapped and faulted in again, which triples the cost of receiving it.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/.cache \
    MALLOC_TOP_PAD_=67108864 \
    PNNX_SERVE_STORE=model_store \
    PNNX_SERVE_CACHE_DIR=/var/cache/pnnx-serve \
    PNNX_SERVE_HOST=0.0.0.0 \
    PNNX_SERVE_PORT=8000

USER 10001:10001
WORKDIR /srv
EXPOSE 8000
STOPSIGNAL SIGTERM
# http.client, because urllib would use a proxy of the environment. The certificate is not verified: it is for the name that
# clients use. A server with tls_client_ca needs another check.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, ssl, sys, http.client as http; at = ('127.0.0.1', int(os.environ['PNNX_SERVE_PORT'])); c = http.HTTPSConnection(*at, timeout=4, context=ssl._create_unverified_context()) if os.environ.get('PNNX_SERVE_TLS_CERTIFICATE') else http.HTTPConnection(*at, timeout=4); c.request('GET', '/health/ready'); sys.exit(c.getresponse().status != 200)"]

ENTRYPOINT ["pnnx-serve"]
CMD ["serve"]
