// Rows in an order can be dragged, too: the script gives each a grip. A row that is dropped elsewhere sends the form of its buttons, which keys press.
"use strict";
let letGo = null; // ends a drag without a move
document.addEventListener("keydown", event => { if (letGo && event.key === "Escape") letGo(); });
for (const list of document.querySelectorAll("ol[data-move]")) {
	const rows = [...list.children];
	for (const [from, row] of rows.entries()) {
		if (rows.length < 2) break;
		const grip = document.createElement("span");
		grip.className = "grip";
		grip.title = "Drag to move";
		grip.setAttribute("aria-hidden", "true"); // the buttons are for those who do not see it
		(row.querySelector("h3") || row).prepend(grip);
		let to = null; // null while nothing is dragged
		const show = place => {
			to = place;
			for (const r of rows) delete r.dataset.drop;
			row.toggleAttribute("data-dragged", to !== null);
			if (to !== null && to !== from) rows[to].dataset.drop = to < from ? "above" : "below";
		};
		const send = () => {
			const form = row.closest("form") || row.querySelector("form"), move = document.createElement("input");
			Object.assign(move, {type: "hidden", name: "move", value: `${list.dataset.move}/${from}/${to}`});
			form.append(move);
			form.submit();
			move.remove(); // the browser may come back to this page
		};
		grip.addEventListener("pointerdown", event => {
			if (event.button !== 0) return;
			event.preventDefault(); // marks no text
			grip.setPointerCapture(event.pointerId);
			letGo = () => show(null);
			show(from);
		});
		grip.addEventListener("pointermove", event => {
			if (to === null) return;
			const reached = rows.findIndex(r => event.clientY < r.getBoundingClientRect().bottom);
			show(reached < 0 ? rows.length - 1 : reached);
		});
		grip.addEventListener("pointerup", () => {
			if (to !== null && to !== from) send();
			show(null);
		});
		grip.addEventListener("pointercancel", () => show(null));
	}
}
