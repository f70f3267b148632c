// The console in headless Chromium, with a record of all its requests and of all errors of the page.

import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { chromium } from "playwright-core";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

/** Text for tests that need Chromium and do not have it. */
export const SKIPPED = !existsSync(CHROMIUM) && `SKIPPED: Chromium is not at ${CHROMIUM}; set CHROMIUM to its path`;

/** Flags for a machine without a display, and without background traffic. */
const FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** Folder with the page, to test it before the server is compiled with it; undefined: the embedded page. */
const PAGE = process.env.CONSOLE_PAGE;

const TYPES = { html: "text/html", js: "text/javascript", css: "text/css" };

async function serveFromFolder(route) {
  const name = new URL(route.request().url()).pathname.slice("/console/".length) || "index.html";
  await route.fulfill({ body: await readFile(`${PAGE}/${name}`), contentType: TYPES[name.split(".").pop()] });
}

/** Folder for pictures of the views; undefined: none are taken. */
const PICTURES = process.env.SCREENSHOTS;

/** Takes a picture of a page in both color schemes, as small WebP files, if SCREENSHOTS names a folder. */
export async function takePictures(browser, page, name) {
  if (PICTURES === undefined) return;
  await mkdir(PICTURES, { recursive: true });
  const canvas = await browser.newPage();
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    const png = await page.screenshot({ fullPage: true });
    const webp = await canvas.evaluate(async (base64) => {
      const image = new Image();
      image.src = `data:image/png;base64,${base64}`;
      await image.decode();
      const drawing = new OffscreenCanvas(image.width, image.height);
      drawing.getContext("2d").drawImage(image, 0, 0);
      const blob = await drawing.convertToBlob({ type: "image/webp", quality: 0.6 });
      return [...new Uint8Array(await blob.arrayBuffer())];
    }, png.toString("base64"));
    await writeFile(`${PICTURES}/${name}-${colorScheme}.webp`, Buffer.from(webp));
    if (process.env.SCREENSHOTS_PNG !== undefined) await writeFile(`${PICTURES}/${name}-${colorScheme}.png`, png);
  }
  await canvas.close();
  await page.emulateMedia({ colorScheme: "light" });
}

/** Chromium without a window. */
export async function launch() {
  return await chromium.launch({ executablePath: CHROMIUM, headless: true, args: FLAGS });
}

export class Console {
  constructor(browser, page, origin) {
    Object.assign(this, { browser, page, origin, requests: [], problems: [] });
    page.on("request", (request) => this.requests.push(`${request.method()} ${request.url()}`));
    page.on("pageerror", (error) => this.problems.push(error.message));
    page.on("console", (message) => message.type() === "error" && this.problems.push(message.text()));
    page.on("dialog", (dialog) => (this.dialog = dialog.message()) && void dialog.accept());
  }

  /** Opens the console of a server. */
  static async open(server, options = {}) {
    const browser = await launch();
    const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, ...options });
    const opened = new Console(browser, page, server.operator);
    if (PAGE !== undefined) await page.route(`${server.operator}/console/**`, serveFromFolder);
    await page.goto(`${server.operator}/console/`);
    return opened;
  }

  /** Waits until the stream has brought its first state. */
  async live() {
    await this.page.locator(".status", { hasText: "live" }).waitFor();
  }

  /** Requests beside the page's own files and the operator's calls. There must be none. */
  foreignRequests() {
    const own = [`GET ${this.origin}/console/`, `POST ${this.origin}/fireteam.v1.OperatorService/`];
    return this.requests.filter((request) => !own.some((start) => request.startsWith(start)));
  }

  /** Takes a picture of the view. */
  async picture(name) {
    await takePictures(this.browser, this.page, name);
  }

  async close() {
    await this.browser.close();
  }
}
