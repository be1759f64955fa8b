import { useSyncExternalStore } from "react";

/** A value outside React that components follow. */
export class Store<Value> {
  #value: Value;
  #listeners = new Set<() => void>();

  constructor(value: Value) {
    this.#value = value;
  }

  get = (): Value => this.#value;

  set = (value: Value): void => {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of this.#listeners) listener();
  };

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };
}

export const useStore = <Value>(store: Store<Value>): Value => useSyncExternalStore(store.subscribe, store.get);
