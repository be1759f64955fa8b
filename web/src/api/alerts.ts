import { queryOptions } from "@tanstack/react-query";
import { answer, client, everyItem, LARGEST_PAGE } from "./client";
import { keys } from "./queries";
import type { components } from "./schema";

type Schemas = components["schemas"];
export type AlertChannel = Schemas["AlertChannelView"];
export type AlertChannelPut = Schemas["AlertChannelPut"];
export type AlertCause = Schemas["AlertCause"];
export type AlertKind = Schemas["AlertKind"];

export const alertChannelsQuery = () =>
  queryOptions({
    queryKey: keys.alertChannels,
    queryFn: ({ signal }) =>
      everyItem((page_token) =>
        answer(client.GET("/api/v1/alert-channels", { params: { query: { page_size: LARGEST_PAGE, page_token } }, signal })),
      ),
  });

/** `isNew`: an existing channel of this name is not replaced. */
export const storeAlertChannel = (name: string, body: AlertChannelPut, isNew: boolean): Promise<AlertChannel> =>
  answer(
    client.PUT("/api/v1/alert-channels/{name}", {
      params: { path: { name }, header: isNew ? { "if-none-match": "*" } : {} },
      body,
    }),
  );

export const deleteAlertChannel = (name: string): Promise<unknown> =>
  answer(client.DELETE("/api/v1/alert-channels/{name}", { params: { path: { name } } }));

/** Sends a test notice; the answer says whether the receiver accepted it. */
export const testAlertChannel = (name: string): Promise<Schemas["AlertTestView"]> =>
  answer(client.POST("/api/v1/alert-channels/{name}/test", { params: { path: { name } } }));
