# Holdfast on a CPU.  docker build -t holdfast .   docker run --rm -v "$PWD/runs:/runs" holdfast run fedavg --out /runs/first
# TORCH_INDEX may name PyTorch's index of CPU builds, which are a tenth of the size.
FROM python:3.12-slim
ARG TORCH_INDEX=""
WORKDIR /src
COPY pyproject.toml hatch_build.py constraints.txt README.md LICENSE ./
COPY holdfast holdfast
ARG HOLDFAST_COMMIT=""
ENV HOLDFAST_COMMIT=$HOLDFAST_COMMIT
RUN pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} --constraint constraints.txt torch \
 && pip install --no-cache-dir --constraint constraints.txt ".[flower,tables,metrics,tune,onnx]"
RUN useradd --create-home holdfast && mkdir /runs && chown holdfast /runs
USER holdfast
WORKDIR /runs
ENTRYPOINT ["holdfast"]
CMD ["--help"]
