/*
 * One picture of the status page, after it has been looked at for a while, since
 * it draws what it has seen itself, and says what it should:
 *
 *     node shot.js URL FILE SECONDS SENTENCE
 *
 * The sentence is a regular expression; without it the picture is
 * FILE.failed.png.  The picture ends after the servers.
 */

"use strict";

const { chromium } = require("playwright-core");
const [url, file, seconds, sentence] = process.argv.slice(2);

(async () => {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
  const page = await (await browser.newContext({
    viewport: { width: 1280, height: 860 }, colorScheme: "light"
  })).newPage();

  await page.goto(url);
  await page.waitForSelector("#peers tbody tr");
  await page.waitForTimeout(1000 * seconds);

  await page.waitForFunction((said) => [document.getElementById("verdict"),
    ...document.querySelectorAll("#why li")]
    .some((e) => new RegExp(said).test(e.textContent)), sentence,
    { timeout: 120000 }).catch(async (e) => {
      await page.screenshot({ path: file + ".failed.png" });
      throw e;
    });

  const height = await page.evaluate(() => Math.min(innerHeight, 10
    + document.getElementById("peers").closest("section")
      .getBoundingClientRect().bottom));

  await page.screenshot({ path: file,
    clip: { x: 0, y: 0, width: 1280, height } });
  await browser.close();
})().catch((e) => { console.error(String(e)); process.exit(1); });
