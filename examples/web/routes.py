"""The routes: the container fills what is marked with Inject."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel

from examples.web.notes import Note, Notebook
from lexigram.web import Inject

router = APIRouter(prefix="/notes", tags=["notes"])


class Text(BaseModel):
    text: str


@router.put("/{name}", status_code=201)
async def write(name: str, body: Text, notes: Annotated[Notebook, Inject()]) -> Text:
    notes.write(Note(name=name, text=body.text))
    return body


@router.get("/{name}")
async def read(name: str, notes: Annotated[Notebook, Inject()]) -> Text:
    return Text(text=notes.read(name).text)
