// Runs Lighthouse on pages of a site: node lighthouse.mjs CHROMIUM COOKIE URL... prints a line of JSON for each.
import * as launcher from "chrome-launcher";
import lighthouse from "lighthouse";

const [chromePath, cookie, ...pages] = process.argv.slice(2);
const chrome = await launcher.launch({chromePath, chromeFlags: ["--headless", "--no-sandbox", "--disable-gpu"], logLevel: "silent"});
try {
	for (const page of pages) {
		const {lhr, artifacts} = await lighthouse(page, {
			port: chrome.port, logLevel: "silent", output: "json", onlyCategories: ["accessibility", "best-practices"],
			extraHeaders: {Cookie: cookie}, disableStorageReset: true, disableFullPageScreenshot: true, throttlingMethod: "provided",
		});
		const scores = Object.fromEntries(Object.values(lhr.categories).map(c => [c.id, c.score]));
		const found = Object.values(lhr.audits).filter(a => a.score !== null && a.score < 1).map(a => `${a.title}: ${JSON.stringify(a.details?.items ?? "")}`);
		const signedIn = artifacts.Inputs.forms.some(f => f.node.snippet.includes("/sign-out")); // else it has judged the form to sign in
		console.log(JSON.stringify({page: lhr.finalDisplayedUrl, error: lhr.runtimeError?.message, signedIn, scores, found}));
	}
} finally {
	chrome.kill();
}
