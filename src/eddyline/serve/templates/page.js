// Keeps a page up to date: numbers with each event, the rest as often as the server makes it anew.
//
// Texts come into the page as texts, or as elements that the server has made and this script has
// parsed in a document that runs nothing; no markup is ever put together here.
(() => {
  const { page, run } = document.body.dataset;
  const FRESHEN_MS = 1000;
  const connection = document.getElementById("connection");
  let stream = null, mark = null, isAsking = false, isStale = false;
  let timer = null, dueAt = Infinity, notBefore = 0;

  // -- the elements of a page that is newer --------------------------------------------------

  const isKept = (node) => node.nodeType === 1 && node.classList.contains("figure");

  const gone = (node) => {
    if (node.nodeType === 1 && window.Plotly) {
      for (const each of [node, ...node.querySelectorAll(".figure")]) {
        if (isKept(each)) { seen.unobserve(each); Plotly.purge(each); }
      }
    }
    node.remove();
  };

  // What a person did stays: what is open, what is typed, where the focus is.
  const OWN = new Set(["open", "style", "tabindex"]);

  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && !a.id && !b.id;

  const become = (old, fresh) => {
    if (old.nodeType !== 1) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (isKept(old)) return;
    for (const { name, value } of fresh.attributes) {
      if (!OWN.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!OWN.has(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    const named = new Map([...old.children].filter(({ id }) => id).map((each) => [each.id, each]));
    let at = old.firstChild;
    for (const node of [...fresh.childNodes]) {
      const found = node.id ? named.get(node.id) : at && alike(at, node) ? at : null;
      if (!found || found.nodeName !== node.nodeName) {
        old.insertBefore(document.importNode(node, true), at);
        continue;
      }
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      become(found, node);
    }
    while (at) { const next = at.nextSibling; gone(at); at = next; }
  };

  // What is wider than its place can be moved by keyboard.
  const reach = () => {
    for (const each of document.querySelectorAll(".scroll")) {
      if (each.scrollWidth > each.clientWidth) each.tabIndex = 0;
      else each.removeAttribute("tabindex");
    }
  };

  // -- figures: only those in sight are drawn ------------------------------------------------

  let drawn = {};
  const inSight = new Set();
  const draw = (element) => { if (window.Plotly && drawn[element.id]) figures.draw(element, drawn[element.id]); };
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) { inSight.add(target); draw(target); } else inSight.delete(target);
    }
  }, { rootMargin: "200px" });

  const readFigures = () => {
    const data = document.getElementById("figures");
    if (!data) return;
    drawn = JSON.parse(data.textContent);
    for (const each of inSight) if (!each.isConnected) inSight.delete(each);
    for (const each of document.querySelectorAll(".figure")) seen.observe(each);
    inSight.forEach(draw);
  };

  // -- numbers -------------------------------------------------------------------------------

  const show = ({ run: of, cells, spark }) => {
    if (!cells) return;
    const scope = page === "list" ? document.getElementById(`run-${of}`) : document;
    if (!scope) return;
    for (const each of scope.querySelectorAll("[data-cell]")) {
      const text = cells[each.dataset.cell] ?? "";
      if (each.textContent !== text) each.textContent = text;
    }
    for (const each of scope.querySelectorAll("[data-at]")) each.dataset.at = cells[each.dataset.of];
    for (const each of scope.querySelectorAll("[data-spark]")) each.setAttribute("points", spark);
    tell();
  };

  const ago = (seconds) => {
    if (seconds < 2) return "now";
    if (seconds < 120) return `${Math.round(seconds)} s ago`;
    if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`;
    if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
    return `${Math.round(seconds / 86400)} days ago`;
  };
  const tell = () => {
    for (const each of document.querySelectorAll("[data-at]")) {
      const at = Number(each.dataset.at);
      const text = at ? ago(Math.max(0, Date.now() / 1000 - at)) : "";
      if (each.textContent !== text) each.textContent = text;
      if (at) each.title = new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
    }
  };

  // -- asking --------------------------------------------------------------------------------

  const say = (text) => { if (connection.textContent !== text) connection.textContent = text; };

  // Asks later, but not before the server has something newer, unless it is urgent.
  const later = (ms, isUrgent = false) => {
    const at = Math.max(Date.now() + ms, isUrgent ? 0 : notBefore);
    if (at >= dueAt) return;
    clearTimeout(timer);
    dueAt = at;
    timer = setTimeout(() => { dueAt = Infinity; freshen(); }, at - Date.now());
  };

  const freshen = async () => {
    if (document.hidden) { isStale = true; return; }
    if (isAsking) { later(FRESHEN_MS); return; }
    isAsking = true;
    try {
      const headers = mark ? { "If-None-Match": mark } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "error" });
      if (answer.status === 401 || answer.status === 403) {
        say("The server was started again with another token: open the address that it tells now.");
        return;
      }
      if (!answer.ok && answer.status !== 304) return;
      mark = answer.headers.get("ETag");
      const wait = Number(answer.headers.get("Eddyline-Wait"));
      notBefore = Date.now() + wait * 1000;
      if (wait) later(FRESHEN_MS);
      if (answer.status === 304) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      become(document.getElementById("main"), fresh.getElementById("main"));
      find();
      reach();
      readFigures();
      tell();
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;  // the server does not answer
    } finally {
      isAsking = false;
    }
  };

  const open = () => {
    if (stream || document.hidden || !page || page === "journal") return;
    stream = new EventSource(run ? `/events?run=${run}` : "/events");
    stream.onopen = () => { say(""); later(0, true); };
    stream.addEventListener("batch", ({ data }) => {
      show(JSON.parse(data));
      if (page === "run") later(FRESHEN_MS);
    });
    stream.addEventListener("runs", ({ data }) => {
      const { failed } = JSON.parse(data);
      say(failed.length ? `Failed: ${failed.join(", ")}` : "");
      later(200, true);
    });
    stream.onerror = () => {
      say("The connection is lost; trying again.");
      if (stream.readyState === EventSource.CLOSED) { close(); setTimeout(again, 2000); }
    };
  };
  const close = () => { if (stream) { stream.close(); stream = null; } };
  const again = async () => { await freshen(); if (!connection.textContent.includes("token")) open(); };

  // A page that nobody sees asks for nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { close(); return; }
    open();
    if (isStale) { isStale = false; freshen(); }
  });

  // -- finding a query by a part of its name -------------------------------------------------

  const find = () => {
    const part = (document.getElementById("find")?.value ?? "").toLowerCase();
    for (const each of document.querySelectorAll("[data-name]")) {
      each.hidden = !each.dataset.name.toLowerCase().includes(part);
    }
  };
  document.addEventListener("input", ({ target }) => { if (target.id === "find") find(); });

  reach();
  readFigures();
  if (window.Plotly) figures.onSurroundings(() => inSight.forEach(draw));
  tell();
  setInterval(() => { if (!document.hidden) tell(); }, 1000);
  open();
})();
