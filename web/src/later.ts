import { type ComponentType, type LazyExoticComponent, lazy } from "react";

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 4000;
const ATTEMPTS = 12;

/**
 * A component that is loaded when it is first shown. A load that fails is repeated for half a minute, and at once when the browser is
 * online again: the server may be restarting. Then it is an error: after an upgrade the server no longer has the files of this page.
 */
// biome-ignore lint/suspicious/noExplicitAny: components of any properties
export function later<C extends ComponentType<any>>(load: () => Promise<C>): LazyExoticComponent<C> {
  return lazy(async () => ({ default: await repeated(load) }));
}

async function repeated<T>(load: () => Promise<T>): Promise<T> {
  let pause = FIRST_PAUSE_MS;
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await load();
    } catch (error) {
      if (attempt === ATTEMPTS) {
        throw new Error("A part of the console could not be loaded: the server does not answer, or was upgraded.", { cause: error });
      }
      await pauseUntilOnline(pause);
      pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    }
  }
}

function pauseUntilOnline(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    addEventListener("online", end);
  });
}
