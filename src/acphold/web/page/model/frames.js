// When the screen shows what was drawn.

/** The frame after this one has begun; a page that nobody sees has no frames. @returns {Promise<void>} */
export const drawn = () => new Promise((resolve) => (requestAnimationFrame(() => setTimeout(resolve)), setTimeout(resolve, 200)));
