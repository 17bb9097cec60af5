# The server in a container: `docker build -t omnigraph .`, then
# `docker run -v /srv/graphs:/graphs -p 8080:8080 omnigraph /graphs/ship.omni --tokens /graphs/tokens.json`, or
# `docker run -e OMNIGRAPH_CLUSTER=s3://bucket/prod -p 8080:8080 omnigraph`.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY omnigraph ./omnigraph
RUN python -m venv /opt/omnigraph && /opt/omnigraph/bin/pip install --no-cache-dir '.[server,mcp]'

FROM python:3.13-slim
COPY --from=build /opt/omnigraph /opt/omnigraph
RUN useradd --create-home --uid 1000 omnigraph && mkdir /graphs && chown omnigraph /graphs
USER 1000
WORKDIR /graphs
VOLUME /graphs
EXPOSE 8080
ENV OMNIGRAPH_BIND=0.0.0.0:8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s CMD ["/opt/omnigraph/bin/python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['OMNIGRAPH_BIND'].rpartition(':')[2] + '/healthz', timeout=4)"]
ENTRYPOINT ["/opt/omnigraph/bin/omnigraph-server", "--log", "json"]
