"""Serves a model over HTTP, with FastAPI and uvicorn (`pip install fastapi uvicorn`).

MODEL=runs/mine uvicorn --app-dir examples serve_http:app
curl http://127.0.0.1:8000/predict -H 'Content-Type: application/json' \
    -d '[{"text": "A fine film."}]'
"""

import os
from typing import Any

from fastapi import FastAPI, HTTPException

from albert_tf import InputError, predict

app = FastAPI()
answer = predict.load(os.environ["MODEL"])


@app.post("/predict")
def respond(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers rows with the columns of the model's task, see `predict.py`."""
    try:
        return list(answer(rows))
    except InputError as mistake:
        raise HTTPException(400, str(mistake)) from None
