"""A conversation as messages for a model: one module for each library that takes them.

    history = await turn.history()
    acphold.bridges.pydantic_ai.model_messages(history.timeline)
    acphold.bridges.openai.chat_messages(history.timeline)
    acphold.bridges.anthropic.messages(history.timeline)

Each needs its library, which acphold does not install by itself: `pip install acphold[openai]`.
They are imported one by one for that.
"""
