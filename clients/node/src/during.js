/**
 * Does work while a lock is held, and then releases it, with `end` if the work succeeded. An error of the work comes before
 * one of the release.
 */
export async function during(held, work, end = () => held.release()) {
  let result;
  try {
    result = await work(held);
  } catch (error) {
    await held.release().catch(() => {});
    throw error;
  }
  await end();
  return result;
}
