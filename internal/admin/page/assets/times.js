// The server writes times in UTC. Here they are written in the browser's time zone. The title of each has the exact instant in UTC.
"use strict";
const showLocalTimes = root => {
	const two = n => String(n).padStart(2, "0");
	const spell = {
		hour: d => two(d.getHours()) + ":" + two(d.getMinutes()),
		second: d => d.getFullYear() + "-" + two(d.getMonth() + 1) + "-" + two(d.getDate()) + " " + two(d.getHours()) + ":" + two(d.getMinutes()) + ":" + two(d.getSeconds()),
	};
	for (const e of root.querySelectorAll("time[data-local]")) {
		const d = new Date(e.dateTime), write = spell[e.dataset.local];
		if (write && !isNaN(d)) e.textContent = write(d);
	}
	const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
	for (const e of root.querySelectorAll("[data-zone]")) if (zone) e.textContent = zone;
};
showLocalTimes(document);
