# One image for every role: the worker, `topics init`, the sample upstream, the commands.
FROM python:3.11-slim

# A worker needs no rights: it talks to Kafka and to upstreams, and writes no file.
RUN useradd --system --uid 10001 --create-home dispatcher
WORKDIR /app

# The locked libraries first: they change less often than the code, and their layer is kept.
COPY requirements.lock ./
RUN python -m pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY dispatcher ./dispatcher
RUN python -m pip install --no-cache-dir --disable-pip-version-check --no-build-isolation --no-deps --no-index .

USER dispatcher
# The exec form: SIGTERM reaches the worker itself, which drains and exits 0.
ENTRYPOINT ["dispatcher"]
CMD ["--help"]
