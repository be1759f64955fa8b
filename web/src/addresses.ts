/** Where pages are. */
export const FLEET = "/";
export const CONNECTIONS = "/connections";
export const subscriptionAddress = (name: string): string => `/subscriptions/${encodeURIComponent(name)}`;
export const tableAddress = (subscription: string, id: string): string =>
  `${subscriptionAddress(subscription)}/tables/${encodeURIComponent(id)}`;
