/** Runs before the tests of each file that need a document: what browsers have and jsdom lacks, and a clean page after each test. */
import { cleanup } from "@testing-library/react";
import { afterEach } from "vitest";
import { queryClient } from "../stream/queryClient";

afterEach(() => {
  cleanup();
  queryClient.clear();
  sessionStorage.clear();
  localStorage.clear();
  history.replaceState(null, "", "/");
});

/** Node's Request takes no address that is relative to the page. */
class PageRequest extends Request {
  constructor(input: RequestInfo | URL, init?: RequestInit) {
    super(typeof input === "string" ? new URL(input, location.href) : input, init);
  }
}
globalThis.Request = PageRequest;

HTMLDialogElement.prototype.showModal ??= function (this: HTMLDialogElement): void {
  this.open = true;
};
HTMLDialogElement.prototype.close ??= function (this: HTMLDialogElement): void {
  this.open = false;
};
