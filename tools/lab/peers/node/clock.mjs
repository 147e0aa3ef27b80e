// Says when something happened, in microseconds since 1970.
export const now = () => Math.round((performance.timeOrigin + performance.now()) * 1000);
export const say = (word, at) => process.stdout.write(`${word} ${at}\n`);
