// What htmx does not do for a view that is live. htmx and its SSE extension follow the stream of the view, and read the view again after each change. Here
// the parts of the view that differ are replaced, when that is in nobody's way; and the page says when its content is old.
"use strict";
(() => {
	const live = document.getElementById("live"), said = document.getElementById("said"), behind = document.getElementById("behind");
	if (!live) return;
	const silence = 40_000; // the stream says something every 15 seconds

	let source;            // the stream
	let heard = 0;         // when it said something, in milliseconds
	let current = Date.now(); // when the content was current
	let lost = 0;          // since when it is not known to be, 0 for never
	let told = false;      // whether a screen reader knows
	let over = false;      // the officer may not see the view any more
	let asked = 0;         // when the view was read again without a change
	let loud = false;      // whether what has changed is said: figures change all the time
	let waiting = null;    // the newer content, while it is in the way
	let waits = 0;         // since when
	let mouse = null;      // where it is in the window
	let moved = 0, pressed = false;

	const stream = new URL(live.getAttribute("sse-connect"), location.href);

	// The stream.

	htmx.createEventSource = address => {
		if (source) source.close(); // one stream a page
		source = new EventSource(address);
		for (const type of ["alive", "changed"]) {
			source.addEventListener(type, event => {
				heard = Date.now();
				if (!lost && !waiting) current = heard;
				stream.searchParams.set("after", event.lastEventId);
				loud = loud || type === "changed" && event.data !== "figures";
			});
		}
		heard = Date.now();
		return source;
	};
	const connect = () => {
		live.setAttribute("sse-connect", stream.pathname + stream.search);
		htmx.trigger(live, "htmx:afterProcessNode"); // makes the extension open a stream
	};
	const readAgain = () => {
		asked = Date.now();
		htmx.trigger(live, "sse:changed");
	};
	const lose = () => { lost = lost || Date.now(); };

	live.addEventListener("htmx:sseError", lose);
	live.addEventListener("htmx:sseOpen", () => { if (lost) setTimeout(readAgain, Math.random() * 1000); }); // not all pages at once
	live.addEventListener("htmx:sendError", lose);
	live.addEventListener("htmx:timeout", lose);
	live.addEventListener("htmx:responseError", event => {
		lose();
		over = over || event.detail.xhr.status < 500 && event.detail.xhr.status !== 429;
		if (over && source) source.close();
	});
	live.addEventListener("htmx:beforeSwap", event => {
		if (event.detail.shouldSwap && event.detail.serverResponse.includes('id="live"')) return;
		event.detail.shouldSwap = false; // it is the sign-in
		over = over || event.detail.xhr.status === 200;
		if (over && source) source.close();
	});
	live.addEventListener("htmx:afterRequest", event => {
		if (!event.detail.successful) return;
		if (!waiting) current = Date.now();
		if (source && source.readyState === EventSource.OPEN) {
			if (told) said.textContent = "Connected again.";
			lost = 0;
			told = false;
		}
		tell();
	});
	document.addEventListener("visibilitychange", () => { // browsers have few connections
		if (over) return;
		if (document.hidden) {
			if (source) source.close();
			return;
		}
		lose();
		connect();
	});

	// The content.

	htmx.defineExtension("parts", {
		handleSwap: (style, target, fragment) => {
			if (style !== "parts") return false;
			waiting = fragment.firstElementChild;
			showLocalTimes(waiting); // as the content that it replaces
			waits = waits || Date.now();
			show();
			return [];
		},
	});

	const main = () => document.getElementById("main");
	const pointed = () => {
		const e = mouse && document.elementFromPoint(mouse.x, mouse.y);
		return e && e !== main() && main().contains(e) ? e : null;
	};
	// busy reports whether somebody is about to press something, or marks text.
	const busy = () => {
		const e = pointed();
		return pressed || e && (Date.now() - moved < 300 || e.closest("a, button, input, select, textarea, label, summary")) ||
			!getSelection().isCollapsed && main().contains(getSelection().anchorNode);
	};
	const isFilled = field => {
		switch (field.type) {
		case "hidden": case "submit": case "button": return false;
		case "checkbox": case "radio": return field.checked !== field.defaultChecked;
		case "select-one": case "select-multiple": {
			const options = [...field.options], chosen = options.some(o => o.defaultSelected);
			return options.some((o, i) => o.selected !== (chosen || field.multiple ? o.defaultSelected : i === 0));
		}
		}
		return field.value !== field.defaultValue;
	};
	// isHeld reports whether somebody fills in a form of a part.
	const isHeld = part => [part, ...part.querySelectorAll("form")].some(f => f.tagName === "FORM" &&
		([...f.elements].some(isFilled) || f.contains(document.activeElement)));

	// textOf returns an element as the server writes it; without times, if that alone is asked.
	const textOf = (e, withTimes = true) => {
		const copy = e.cloneNode(true);
		for (const one of [copy, ...copy.querySelectorAll("*")]) {
			one.removeAttribute("data-changed");
			if (one.tagName === "DETAILS") one.removeAttribute("open");
			if (one.name === "token") one.removeAttribute("value");
			if (one.tagName === "TIME" && !withTimes) one.replaceWith("");
		}
		return copy.outerHTML;
	};
	const shellOf = e => textOf(e.cloneNode(false));
	const isBox = e => e.children.length > 0 && !(e instanceof SVGElement) && [...e.childNodes].every(n => n.nodeType !== Node.TEXT_NODE || !n.nodeValue.trim());
	const keyOf = e => e.id || e.getAttribute("aria-labelledby") || e.tagName;

	// merge makes the children of an element like those of next, and keeps what is the same, or in use. It returns whether it has kept something that differs.
	const merge = (old, next, marks, outermost) => {
		const olds = [...old.children], news = [...next.children], textsOfOld = olds.map(e => textOf(e)), result = [];
		let from = 0, held = false;
		const replace = (e, by) => {
			const isMerged = isBox(e) && isBox(by) && shellOf(e) === shellOf(by);
			if (outermost && isHeld(e) || !isMerged && e.contains(document.activeElement)) {
				held = true;
				return e;
			}
			if (isMerged) {
				held = merge(e, by, marks, false) || held;
				return e;
			}
			if (textOf(e, false) !== textOf(by, false)) marks.push(by);
			return by;
		};
		const fill = (gone, come) => { // between two children that are the same in both
			for (const e of come) {
				const i = gone.findIndex(o => keyOf(o) === keyOf(e));
				if (i < 0) {
					marks.push(e);
					result.push(e);
					continue;
				}
				result.push(...gone.splice(0, i).filter(keep));
				result.push(replace(gone.shift(), e));
			}
			result.push(...gone.filter(keep));
		};
		const keep = e => {
			const used = isHeld(e) || e.contains(document.activeElement);
			held = held || used;
			return used;
		};
		let come = [];
		for (const e of news) {
			const i = textsOfOld.indexOf(textOf(e), from);
			if (i < 0) {
				come.push(e);
				continue;
			}
			fill(olds.slice(from, i), come);
			result.push(olds[i]);
			from = i + 1;
			come = [];
		}
		fill(olds.slice(from), come);
		const stay = new Set(result);
		for (const e of olds) if (!stay.has(e)) e.remove();
		let at = old.firstElementChild;
		for (const e of result) {
			if (e === at) {
				at = at.nextElementSibling;
				continue;
			}
			old.insertBefore(e, at);
			htmx.process(e);
		}
		return held;
	};

	// show shows the newer content, as far as that is in nobody's way, and so that what the pointer is on stays there.
	const show = () => {
		if (!waiting || busy()) return;
		const marks = [], anchor = pointed(), top = anchor ? anchor.getBoundingClientRect().top : 0;
		const next = waiting;
		const held = merge(main(), next.cloneNode(true), marks, true);
		waiting = held ? next : null;
		if (!held) waits = 0;
		if (anchor && anchor.isConnected) scrollBy({top: anchor.getBoundingClientRect().top - top, behavior: "instant"});
		const names = new Set();
		for (const e of marks) {
			e.setAttribute("data-changed", "");
			setTimeout(() => e.removeAttribute("data-changed"), 4000);
			const heading = (e.closest("section") || main()).querySelector("h1, h2, h3");
			if (heading) names.add(heading.innerText);
		}
		if (loud && names.size) said.textContent = "Changed: " + [...names].join(", ");
		if (!held) loud = false;
		tell();
	};

	document.addEventListener("pointermove", event => {
		if (event.pointerType !== "mouse") return;
		mouse = {x: event.clientX, y: event.clientY};
		moved = Date.now();
	});
	document.documentElement.addEventListener("pointerleave", () => { mouse = null; });
	document.addEventListener("pointerdown", () => { pressed = true; });
	for (const type of ["pointerup", "pointercancel"]) document.addEventListener(type, () => { pressed = false; });

	// What the page says of itself.

	const spell = ms => ms < 60_000 ? Math.floor(ms / 1000) + " s" : ms < 3_600_000 ? Math.floor(ms / 60_000) + " min" : Math.floor(ms / 3_600_000) + " h";
	const tell = () => {
		const now = Date.now();
		const was = "What you see is from " + new Date(current).toLocaleTimeString() + ", " + spell(now - current) + " ago.";
		let note = "", why = "";
		if (over) why = "Switchboard does not show you this any more. Load the page again to see why.";
		else if (lost && now - lost > 3000) why = "There is no connection to Switchboard. The page goes on by itself when it is back.";
		else if (waiting && now - waits > 2000) note = "There is newer content. It comes when you leave the form, the link or the text that you have marked.";
		if (why) {
			note = why + " " + was;
			if (!told) said.textContent = why;
			told = true;
		}
		if (behind.textContent !== note) behind.textContent = note;
		behind.hidden = !note;
	};
	setInterval(() => {
		const now = Date.now();
		if (!over && !document.hidden && source) {
			if (now - heard > silence) { // the connection is dead, and the browser does not know it
				lose();
				heard = now;
				connect();
			}
			if (lost && now - lost > 3000 && now - asked > 5000) readAgain(); // also to learn whether the officer may still see it
		}
		show();
		tell();
	}, 1000);
})();
