/** Where pages are. */
export const FLEET = "/";
export const FRESHNESS = "/freshness";
export const TICKETS = "/tickets";
export const CONNECTIONS = "/connections";
export const ALERTS = "/alerts";
export const TOKENS = "/tokens";
export const NEW_ALERT_CHANNEL = "/new-alert-channel";
export const NEW_CONNECTION = "/new-connection";
export const NEW_SUBSCRIPTION = "/new-subscription";
export const connectionAddress = (name: string): string => `/connections/${encodeURIComponent(name)}`;
export const alertChannelAddress = (name: string): string => `${ALERTS}/${encodeURIComponent(name)}`;
export const subscriptionAddress = (name: string): string => `/subscriptions/${encodeURIComponent(name)}`;
export const tableAddress = (subscription: string, id: string): string =>
  `${subscriptionAddress(subscription)}/tables/${encodeURIComponent(id)}`;
export const tableOptionsAddress = (subscription: string, id: string): string => `${tableAddress(subscription, id)}/options`;
const of = (address: string, subscription: string): string => `${address}?${new URLSearchParams({ subscription }).toString()}`;
export const freshnessAddress = (subscription: string): string => of(FRESHNESS, subscription);
export const queryAtAddress = (subscription: string, read_point: string): string =>
  `${FRESHNESS}?${new URLSearchParams({ subscription, read_point }).toString()}`;
export const ticketsAddress = (subscription: string): string => of(TICKETS, subscription);
/** Parts of a subscription that have pages of their own. */
export const subscriptionPart = (name: string, part: string): string => `${subscriptionAddress(name)}/${part}`;
export const addTableAddress = (subscription: string): string => `${subscriptionAddress(subscription)}/add/table`;
