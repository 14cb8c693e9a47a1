"use strict";
// Shows the values of the mark nearest to the pointer, or of the one that has the focus.
(() => {
  const tip = document.getElementById("tip");
  const reach = 40;
  let active = null;

  const hide = () => {
    if (active) active.classList.remove("active");
    active = null;
    tip.hidden = true;
  };

  const centre = (mark) => {
    const box = (mark.querySelector("circle") || mark).getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };

  const show = (mark) => {
    if (mark !== active) {
      hide();
      active = mark;
      mark.classList.add("active");
      tip.textContent = mark.dataset.tip;
    }
    tip.hidden = false;
    const [x, y] = centre(mark);
    const box = tip.getBoundingClientRect();
    const left = Math.min(Math.max(x - box.width / 2, 8), document.documentElement.clientWidth - box.width - 8);
    const above = y - box.height - 16;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : y + 20}px`;
  };

  const nearest = (svg, x, y) => {
    let best = null;
    let distance = reach;
    for (const mark of svg.querySelectorAll("[data-tip]")) {
      const [a, b] = centre(mark);
      const d = Math.hypot(a - x, b - y);
      if (d < distance) [best, distance] = [mark, d];
    }
    return best;
  };

  for (const svg of document.querySelectorAll(".figure svg")) {
    const follow = (event) => {
      const mark = nearest(svg, event.clientX, event.clientY);
      if (mark) show(mark);
      else hide();
    };
    svg.addEventListener("pointermove", follow);
    svg.addEventListener("pointerdown", follow);
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("focusin", (event) => {
      const mark = event.target.closest("[data-tip]");
      if (mark) show(mark);
    });
    svg.addEventListener("focusout", hide);
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  window.addEventListener("scroll", () => {
    if (active && active === document.activeElement) show(active);
    else hide();
  }, { passive: true });

  const opened = [];
  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details:not([open])")) {
      details.open = true;
      opened.push(details);
    }
  });
  window.addEventListener("afterprint", () => {
    for (const details of opened.splice(0)) details.open = false;
  });
})();
