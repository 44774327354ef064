# dplda as a command. Mount the folder of texts, ledger and models at /data:
#   docker build -t dplda .
#   docker run --rm --user "$(id -u)" -v "$PWD:/data" dplda fit texts --epsilon 4 \
#       --out topics.dplda --ledger privacy.sqlite
FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY . /source
RUN python -m pip wheel --no-cache-dir --wheel-dir /wheels /source

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    python -m pip install --no-cache-dir --no-index --find-links /wheels dplda
# a ledger is readable by its owner only, so that fits run as one user
RUN useradd --uid 1000 --no-create-home dplda && install -d -o dplda -g dplda /data
USER 1000
WORKDIR /data
VOLUME /data
ENTRYPOINT ["dplda"]
CMD ["--help"]
