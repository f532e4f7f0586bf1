//! `expand` writes the code of `#[section(…)]`: the key, type, default and help of each field, and how records without the field are read.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Data, DeriveInput, Error, Expr, Field, Fields, Ident, Lit, LitStr, Meta, Path, Result, Token, parse_quote};

/// What stands in `#[section(…)]`.
struct SectionArguments {
    name: LitStr,
    workloads: Option<Vec<Ident>>,
    per_job: bool,
    not_run: bool,
}

impl Parse for SectionArguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = Self { name: input.parse()?, workloads: None, per_job: false, not_run: false };
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            let argument: Ident = input.call(Ident::parse_any)?;
            match argument.to_string().as_str() {
                "workloads" => arguments.workloads = Some(parse_workloads(input)?),
                "per_job" => arguments.per_job = true,
                "not_run" => arguments.not_run = true,
                _ => return Err(Error::new(argument.span(), "a section takes workloads(…), per_job and not_run")),
            }
        }
        Ok(arguments)
    }
}

/// A value without a config: a literal, a list of texts, or the path of a constant.
#[derive(Clone)]
enum DefaultValue {
    Literal(Lit),
    Texts(Vec<LitStr>),
    Constant(Path),
}

impl Parse for DefaultValue {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(Lit) {
            return input.parse().map(Self::Literal);
        }
        if input.peek(syn::token::Bracket) {
            let content;
            syn::bracketed!(content in input);
            let texts = Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?;
            return Ok(Self::Texts(texts.into_iter().collect()));
        }
        input.parse().map(Self::Constant)
    }
}

impl DefaultValue {
    /// An expression of the field's type.
    fn expression(&self) -> TokenStream {
        match self {
            Self::Literal(Lit::Str(text)) => quote!(::std::string::String::from(#text)),
            Self::Literal(literal) => quote!(#literal),
            Self::Texts(texts) => quote!(::std::vec![#(::std::string::String::from(#texts)),*]),
            Self::Constant(path) => quote!(#path),
        }
    }
}

/// What a setting is where no config sets it.
enum Preset {
    Required,
    Value(DefaultValue),
    Derived(LitStr),
}

/// Whether a record without the field has a value.
enum Added {
    /// All records have the field.
    No,
    /// Those without it have the default.
    AsDefault,
    /// Those without it have this.
    Value(DefaultValue),
}

/// What stands in `#[setting(…)]`.
struct SettingArguments {
    preset: Option<Preset>,
    added: Added,
    /// Calls that narrow the range of the field's type.
    bounds: Vec<TokenStream>,
    workloads: Option<Vec<Ident>>,
    per_job: bool,
    not_run: bool,
}

impl Parse for SettingArguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = Self {
            preset: None,
            added: Added::No,
            bounds: Vec::new(),
            workloads: None,
            per_job: false,
            not_run: false,
        };
        while !input.is_empty() {
            let argument: Ident = input.call(Ident::parse_any)?;
            let name = argument.to_string();
            match name.as_str() {
                "required" => arguments.preset = Some(Preset::Required),
                "default" => {
                    input.parse::<Token![=]>()?;
                    arguments.preset = Some(Preset::Value(input.parse()?));
                }
                "derived" => {
                    input.parse::<Token![=]>()?;
                    arguments.preset = Some(Preset::Derived(input.parse()?));
                }
                "added" if input.peek(Token![=]) => {
                    input.parse::<Token![=]>()?;
                    arguments.added = Added::Value(input.parse()?);
                }
                "added" => arguments.added = Added::AsDefault,
                "min" | "above" | "max" => {
                    input.parse::<Token![=]>()?;
                    let bound: Lit = input.parse()?;
                    let of = if matches!(bound, Lit::Float(_)) { "number" } else { "integer" };
                    let narrow = format_ident!("{name}_{of}");
                    arguments.bounds.push(quote!(.#narrow(#bound)));
                }
                "workloads" => arguments.workloads = Some(parse_workloads(input)?),
                "per_job" => arguments.per_job = true,
                "not_run" => arguments.not_run = true,
                _ => return Err(Error::new(argument.span(), "unknown argument of a setting")),
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(arguments)
    }
}

fn parse_workloads(input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let content;
    syn::parenthesized!(content in input);
    Ok(Punctuated::<Ident, Token![,]>::parse_terminated(&content)?.into_iter().collect())
}

/// A field of a section with everything that is said of it.
struct Setting {
    name: Ident,
    /// The dotted key.
    key: String,
    value: syn::Type,
    help: String,
    arguments: SettingArguments,
}

impl Setting {
    /// Reads a field and takes its `setting` attribute away.
    fn read(field: &mut Field, section: &LitStr) -> Result<Self> {
        let name = field.ident.clone().ok_or_else(|| Error::new(section.span(), "a section has named fields"))?;
        let at = field.attrs.iter().position(|attribute| attribute.path().is_ident("setting"));
        let at = at.ok_or_else(|| Error::new(name.span(), "a field of a section needs #[setting(…)]"))?;
        let arguments: SettingArguments = field.attrs.remove(at).parse_args()?;
        let help = first_paragraph(&field.attrs);
        if help.is_empty() {
            return Err(Error::new(name.span(), "a setting needs documentation: it is its help"));
        }
        let key = format!("{}.{name}", section.value());
        Ok(Self { name, key, value: field.ty.clone(), help, arguments })
    }

    /// The value of a record without the field, or of a struct by default.
    fn default_expression(&self) -> Option<TokenStream> {
        match (&self.arguments.added, &self.arguments.preset) {
            (Added::Value(value), _) | (_, Some(Preset::Value(value))) => Some(value.expression()),
            _ => None,
        }
    }

    /// Name of the function that returns it.
    fn default_function(&self) -> Ident {
        format_ident!("default_{}", self.name)
    }

    /// The constant with the field's key.
    fn key_constant(&self) -> TokenStream {
        let (key, value) = (&self.key, &self.value);
        let name = format_ident!("{}", self.name.to_string().to_uppercase());
        let documentation = format!("`{key}`");
        quote! {
            #[doc = #documentation]
            pub const #name: ::expctl_settings::Key<#value> = ::expctl_settings::Key::new(#key);
        }
    }

    /// The field's entry in the table of keys.
    fn spec(&self, owner: &Ident, section: &SectionArguments) -> Result<TokenStream> {
        let Self { name, key, value, help, arguments } = self;
        let json = |expression: TokenStream| quote!({ fn value() -> ::serde_json::Value { ::expctl_settings::to_json(&#expression) } value });
        let function = self.default_function();
        let default = match &arguments.preset {
            Some(Preset::Required) => quote!(::expctl_settings::KeyDefault::Required),
            Some(Preset::Derived(text)) => quote!(::expctl_settings::KeyDefault::Derived(#text)),
            // With `added = VALUE` the function is of old records, and this is of configs.
            Some(Preset::Value(default)) if matches!(arguments.added, Added::Value(_)) => {
                let expression = default.expression();
                let value = json(quote!({ let value: #value = #expression; value }));
                quote!(::expctl_settings::KeyDefault::Value(#value))
            }
            Some(Preset::Value(_)) => {
                let value = json(quote!(#owner::#function()));
                quote!(::expctl_settings::KeyDefault::Value(#value))
            }
            None => return Err(Error::new(name.span(), "a setting is `required`, or has a `default` or a `derived`")),
        };
        let in_id = if arguments.not_run || section.not_run {
            quote!(::expctl_settings::InId::Never)
        } else if matches!(arguments.added, Added::No) {
            quote!(::expctl_settings::InId::Always)
        } else {
            let value = json(quote!(#owner::#function()));
            quote!(::expctl_settings::InId::Unless(#value))
        };
        let workloads = match arguments.workloads.as_ref().or(section.workloads.as_ref()) {
            Some(workloads) => quote!(&[#(::expctl_settings::Workload::#workloads),*]),
            None => quote!(&::expctl_settings::Workload::ALL),
        };
        let (per_job, bounds) = (arguments.per_job || section.per_job, &arguments.bounds);
        Ok(quote! {
            ::expctl_settings::KeySpec {
                key: #key,
                value: <#value as ::expctl_settings::SettingValue>::TYPE #(#bounds)*,
                default: #default,
                help: #help,
                workloads: #workloads,
                per_job: #per_job,
                in_id: #in_id,
            }
        })
    }
}

/// The first paragraph of the documentation in one line, without the period at its end.
fn first_paragraph(attributes: &[syn::Attribute]) -> String {
    let mut words: Vec<String> = Vec::new();
    for attribute in attributes {
        let Meta::NameValue(documentation) = &attribute.meta else { continue };
        let Expr::Lit(syn::ExprLit { lit: Lit::Str(line), .. }) = &documentation.value else { continue };
        if !documentation.path.is_ident("doc") {
            continue;
        }
        let line = line.value();
        if line.trim().is_empty() {
            break;
        }
        words.push(line.trim().to_owned());
    }
    let text = words.join(" ");
    text.strip_suffix('.').unwrap_or(&text).to_owned()
}

pub fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let section: SectionArguments = syn::parse2(arguments)?;
    let mut item: DeriveInput = syn::parse2(item)?;
    let owner = item.ident.clone();
    let Data::Struct(syn::DataStruct { fields: Fields::Named(fields), .. }) = &mut item.data else {
        return Err(Error::new(owner.span(), "a section is a struct with named fields"));
    };
    let mut settings: Vec<Setting> = Vec::new();
    for field in &mut fields.named {
        let setting = Setting::read(field, &section.name)?;
        if !matches!(setting.arguments.added, Added::No) {
            let path = format!("{owner}::{}", setting.default_function());
            field.attrs.push(parse_quote!(#[serde(default = #path)]));
        }
        settings.push(setting);
    }
    let name = &section.name;
    let constants = settings.iter().map(Setting::key_constant);
    let specs: Vec<TokenStream> =
        settings.iter().map(|setting| setting.spec(&owner, &section)).collect::<Result<_>>()?;
    let functions = settings.iter().filter_map(|setting| {
        let (function, value, expression) = (setting.default_function(), &setting.value, setting.default_expression()?);
        Some(quote!(fn #function() -> #value { #expression }))
    });
    let default = settings.iter().all(|setting| setting.default_expression().is_some()).then(|| {
        let names = settings.iter().map(|setting| &setting.name);
        let functions = settings.iter().map(Setting::default_function);
        quote! {
            impl ::core::default::Default for #owner {
                fn default() -> Self { Self { #(#names: Self::#functions()),* } }
            }
        }
    });
    Ok(quote! {
        #item

        impl #owner {
            #(#constants)*
            #(#functions)*
        }

        impl ::expctl_settings::Section for #owner {
            const NAME: &'static str = #name;
            const KEYS: &'static [::expctl_settings::KeySpec] = &[#(#specs),*];
        }

        #default
    })
}
