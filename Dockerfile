# An image with Switchboard and nothing else: one static program, the certificates of
# public authorities, and a folder for its data. It needs no root, and no root file
# system that can be written to. Servers that are started over stdio need their programs:
# build on this image, or take them from another one.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o /out/switchboard ./cmd/switchboard
RUN mkdir -m 700 /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/switchboard /switchboard
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
EXPOSE 7420 7421 7422
VOLUME /data
STOPSIGNAL SIGTERM
ENTRYPOINT ["/switchboard"]
CMD ["serve", "--config", "/etc/switchboard/switchboard.yaml", "--data", "/data"]
