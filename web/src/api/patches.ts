import { answer, client, type Subscription } from "./client";
import { Problem } from "./problem";
import type { components } from "./schema";

type Patch = components["schemas"]["SubscriptionPatch"];

/**
 * Changes a subscription that is still as it was shown: what another user set meanwhile is not overwritten unseen.
 * `check` is given the subscription as it is now, and throws `changedMeanwhile` if it is not as it was shown.
 */
export async function patchUnchanged(name: string, check: (present: Subscription) => void, body: Record<string, unknown>): Promise<void> {
  const path = { name };
  const read = client.GET("/api/v1/subscriptions/{name}", { params: { path } });
  check(await answer(read));
  const etag = (await read).response.headers.get("ETag");
  const header = etag === null ? {} : { "if-match": etag };
  try {
    await answer(client.PATCH("/api/v1/subscriptions/{name}", { params: { path, header }, body: body as Patch }));
  } catch (error) {
    throw Problem.from(error).status === 412 ? changedMeanwhile(`Another user changed ${name} at the same time.`) : error;
  }
}

export const changedMeanwhile = (detail: string): Problem =>
  new Problem({
    status: 412,
    code: "precondition_failed",
    title: "It was not saved",
    detail,
    remedy: "Check the current value, and save again if you still want to.",
  });
