//! Proxies by scheme: the knob `proxy` for both, else what the environment says of each.

use flatout_engine::Proxies;
use flatout_settings::Settings;

use crate::layers::{Layer, SettingRow};
use crate::{AmbientError, Environment, text};

/// Lower case before upper case, a scheme's own before the one for all, as with curl. curl reads `HTTP_PROXY`
/// in lower case only, since a web server hands a visitor's `Proxy:` header to a CGI program under that name.
/// Go, Python and AWS's tools read it elsewhere, and so it is here: everywhere but under CGI
/// (`REQUEST_METHOD` is set).
pub(crate) fn find(
    environment: &Environment,
    settings: &Settings,
) -> Result<(Proxies, Vec<SettingRow>), AmbientError> {
    let no_proxy = settings.no_proxy.clone();
    if let Some(proxy) = &settings.proxy {
        let both = Some(proxy.clone());
        return Ok((Proxies { http: both.clone(), https: both, no_proxy }, Vec::new()));
    }
    let cgi = text(environment, "REQUEST_METHOD")?.is_some();
    let names_http: &[&str] = match cgi {
        true => &["http_proxy", "all_proxy", "ALL_PROXY"],
        false => &["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
    };
    let http = first(environment, "http-proxy", names_http)?;
    let https = first(environment, "https-proxy", &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])?;
    let value = |row: &Option<SettingRow>| row.as_ref().map(|row| row.values[0].clone());
    let proxies = Proxies { http: value(&http), https: value(&https), no_proxy };
    Ok((proxies, http.into_iter().chain(https).collect()))
}

fn first(
    environment: &Environment,
    name: &'static str,
    variables: &[&str],
) -> Result<Option<SettingRow>, AmbientError> {
    for variable in variables {
        if let Some(value) = text(environment, variable)? {
            let place = (*variable).to_owned();
            return Ok(Some(SettingRow { name, values: vec![value], layer: Layer::Found, place }));
        }
    }
    Ok(None)
}
