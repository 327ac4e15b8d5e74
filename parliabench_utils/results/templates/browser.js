// The speech browser: filters, sorting (tablesort) and the way from a row to its speech. Without it the page can still be read.
"use strict";
(() => {
  const form = document.getElementById("find");
  const table = document.getElementById("list");
  const head = document.getElementById("score");
  const rows = [...table.tBodies[0].rows];
  const prompts = [...document.querySelectorAll("details.prompt")];
  const fields = [...form.elements].filter((field) => field.name);
  const field = (name) => form.elements.namedItem(name);
  const KEYS = ["prompt", "party", "topic", "house", "model", "type"];

  // Best first is the order that the arrow of the score says; rows without a value come last either way.
  const value = (text) => parseFloat(text) || 0;
  Tablesort.extend("score", () => false, (a, b) => value(b) - value(a));
  const sorter = new Tablesort(table);
  table.addEventListener("afterSort", () => {
    const column = sorter.current.cellIndex;
    rows.filter((row) => row.cells[column].textContent === "—").forEach((row) => row.parentNode.append(row));
  });

  function showScore() {
    const option = field("score").selectedOptions[0];
    rows.forEach((row) => { row.cells[1].textContent = row.dataset.scores.split("|")[option.value]; });
    head.textContent = option.textContent;
    sorter.current?.removeAttribute("aria-sort");
    sorter.current = head;
    head.setAttribute("aria-sort", option.dataset.arrow === "↑" ? "descending" : "ascending");
    sorter.refresh();
  }

  function matches(row) {
    if (KEYS.some((key) => field(key).value && field(key).value !== row.dataset[key])) return false;
    const score = parseFloat(row.cells[1].textContent);
    const [from, to] = [field("from").valueAsNumber, field("to").valueAsNumber];
    if (!isNaN(from) && !(score >= from)) return false;
    if (!isNaN(to) && !(score <= to)) return false;
    const words = field("words").value.trim().toLowerCase();
    const text = document.getElementById(row.dataset.speech).querySelector(".text");
    return !words || Boolean(text?.textContent.toLowerCase().includes(words));
  }

  function apply() {
    const found = rows.filter((row) => { row.hidden = !matches(row); return !row.hidden; });
    const wanted = new Set(found.map((row) => row.dataset.prompt));
    const model = field("model").value;
    prompts.forEach((prompt) => {
      prompt.hidden = !wanted.has(prompt.id);
      prompt.querySelectorAll("article:not(.human)").forEach((speech) => {
        speech.hidden = Boolean(model) && model !== "human" && speech.dataset.model !== model;
      });
    });
    if (field("prompt").value) document.getElementById(field("prompt").value).open = true;
    document.getElementById("found").textContent = `${found.length} of ${rows.length} answers, ${wanted.size} prompts`;
  }

  // The choice stands in the address (#find?party=Labour&score=3), so that a view can be kept and sent.
  const chosen = () => fields.filter((f) => f.value && f.value !== f.dataset.initial).map((f) => [f.name, f.value]);
  function remember() {
    const query = new URLSearchParams(chosen()).toString();
    history.replaceState(null, "", query ? `#find?${query}` : "#find");
  }

  function follow() {
    const [place, query] = location.hash.slice(1).split("?");
    if (place === "find" && query) {
      new URLSearchParams(query).forEach((text, name) => { if (field(name)) field(name).value = text; });
      showScore();
      apply();
      form.scrollIntoView();
    }
    const target = document.getElementById(decodeURIComponent(place));
    const prompt = target?.closest("details.prompt");
    if (!prompt) return;
    prompt.hidden = target.hidden = false;
    prompt.open = true;
    target.scrollIntoView();
  }

  fields.forEach((f) => { f.dataset.initial = f.value; });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => {
    if (event.target.name === "score") showScore();
    apply();
    remember();
  });
  form.addEventListener("reset", () => setTimeout(() => { showScore(); apply(); remember(); }));
  document.getElementById("open").addEventListener("click", (event) => {
    const shown = prompts.filter((prompt) => !prompt.hidden);
    const opening = !shown.every((prompt) => prompt.open);
    shown.forEach((prompt) => { prompt.open = opening; });
  });
  window.addEventListener("hashchange", follow);
  form.hidden = false;
  showScore();
  apply();
  follow();
})();
