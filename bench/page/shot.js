/*
 * One picture of the status page, after it has been looked at for a while, since
 * it draws what it has seen itself:  node shot.js URL FILE SECONDS
 */

"use strict";

const { chromium } = require("playwright-core");
const [url, file, seconds] = process.argv.slice(2);

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
  await page.screenshot({ path: file });
  await browser.close();
})().catch((e) => { console.error(String(e)); process.exit(1); });
