# `acphold serve` in a container. Its options stand behind the image:
#
#     docker build --tag acphold .
#     docker run --publish 127.0.0.1:8260:8260 --volume acphold:/data acphold --url https://HOST -- AGENT
#
# HOST is your proxy, which encrypts. The image has no agents; install yours in an image based on it.
FROM python:3.13-slim AS build
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels ./wire ./check ".[all]"

FROM python:3.13-slim
# hadolint ignore=DL3013
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels "acphold[all]" \
    && useradd --create-home --uid 1000 acphold \
    && install --directory --owner acphold --group acphold --mode 700 /data
USER 1000
WORKDIR /home/acphold
ENV ACPHOLD_JOURNAL=/data/journal.db \
    XDG_STATE_HOME=/data/state \
    XDG_CONFIG_HOME=/data/config
VOLUME /data
EXPOSE 8260
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8260/health', timeout=4)"]
ENTRYPOINT ["acphold", "serve", "--listen", "0.0.0.0:8260"]
