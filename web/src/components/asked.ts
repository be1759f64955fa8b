import type { Action } from "../actions";
import { Store } from "../store";

/** The action that waits for confirmation. It is not kept in the button: an event may remove that from the page meanwhile. */
export const asked = new Store<Action | null>(null);
