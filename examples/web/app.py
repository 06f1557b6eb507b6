"""A small API: notes, kept as long as the process lives; `lexigram serve examples.web.app:app`."""

from examples.web.notes import NotesModule
from examples.web.routes import router
from lexigram.app import Application
from lexigram.web import WebModule

app = Application("notes", modules=[NotesModule, WebModule.configure(routers=[router])])
