"""A conversation as messages for a model, with one module for each library.

    history = await turn.history()
    acphold.bridges.pydantic_ai.model_messages(history.timeline)
    acphold.bridges.openai.chat_messages(history.timeline)
    acphold.bridges.anthropic.messages(history.timeline)

Each module needs its library, which acphold does not install by itself: `pip install
acphold[openai]`. So they are imported one by one.
"""
