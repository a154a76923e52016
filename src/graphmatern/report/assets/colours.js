// From a value to a colour. Tables of colours come from the page's data, so that page and pictures agree.

export const LEVELS = 48; // colours of a scale: more cannot be told apart, fewer make bands
export const FADES = 4; // steps from sure to unsure
export const NO_VALUE = 255;

export const normalCdf = (z) => {
  // Abramowitz and Stegun 7.1.26 is good to 1.5e-7: more than eight bits of colour or two digits can show.
  const x = Math.abs(z) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * x);
  const poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const tail = 0.5 * poly * Math.exp(-x * x);
  return z > 0 ? 1 - tail : tail;
};

// Probability of more than a threshold: exact where predictions are normal, else between known quantiles.
export function exceedance(threshold, { mean, std, quantiles }, { scores, logarithmic }, out) {
  const n = mean.length;
  const scale = logarithmic ? (value) => Math.log(Math.max(value, 1e-300)) : (value) => value;
  for (let i = 0; i < n; i++) {
    let z;
    if (!quantiles) {
      z = std[i] > 0 ? (threshold - mean[i]) / std[i] : threshold < mean[i] ? -9 : 9;
    } else {
      const last = scores.length - 1;
      let k = 0;
      while (k < last - 1 && quantiles[(k + 1) * n + i] < threshold) k++;
      const low = quantiles[k * n + i];
      const high = quantiles[(k + 1) * n + i];
      const share = high > low ? (scale(threshold) - scale(low)) / (scale(high) - scale(low)) : threshold < low ? -9 : 9;
      z = scores[k] + share * (scores[k + 1] - scores[k]);
    }
    out[i] = 1 - normalCdf(z);
  }
  return out;
}

export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// Colours of a scale by index: LEVELS of them for each step of fading towards the page's background.
export function scaleStyles(table, background, classes = 0) {
  const to = channels(background);
  const styles = new Array(256);
  const count = table.length / 3;
  for (let fade = 0; fade < FADES; fade++) {
    const keep = 1 - 0.27 * fade;
    for (let level = 0; level < LEVELS; level++) {
      const at = classes ? level % count : Math.round((level / (LEVELS - 1)) * (count - 1));
      const mixed = [0, 1, 2].map((k) => Math.round(keep * table[3 * at + k] + (1 - keep) * to[k]));
      styles[fade * LEVELS + level] = `rgb(${mixed.join(",")})`;
    }
  }
  styles[NO_VALUE] = themeColour("--no-value");
  return styles;
}

export function levelOf(value, low, high) {
  if (Number.isNaN(value)) return NO_VALUE;
  const share = high > low ? (value - low) / (high - low) : 0.5;
  return Math.max(0, Math.min(LEVELS - 1, Math.floor(share * LEVELS)));
}
